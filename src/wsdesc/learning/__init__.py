"""Train descriptors: pairs from unlabelled scans, losses, trainers, self-training and distillation."""
