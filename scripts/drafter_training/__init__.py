"""The parts of train_drafter.py: data, the frozen target as teacher, the training pass, the checkpoint."""
