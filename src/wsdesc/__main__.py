"""`python -m wsdesc` is the command `wsdesc`."""

from wsdesc.cli import main

if __name__ == "__main__":
    main()
