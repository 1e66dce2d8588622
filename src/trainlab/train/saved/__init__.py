"""How far the training of a group has come, saved in checkpoints and taken up again."""
