"""What there is: the images of a data set, their targets, their splits, their names."""
