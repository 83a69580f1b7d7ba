"""Many Runs by file: configuration, the cells it makes, playing them."""
