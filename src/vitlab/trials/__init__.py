"""Choose a recipe for a folder of images by short trials, and plan a final run that ends within a number of minutes."""
