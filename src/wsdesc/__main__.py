"""`python -m wsdesc` is the command `wsdesc`."""

from wsdesc.cli.app import main

if __name__ == "__main__":
    main()
