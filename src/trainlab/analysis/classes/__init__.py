"""What the test set shows of a classifier, class by class."""
