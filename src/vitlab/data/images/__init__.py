"""From bytes to a crop: decoding, resampling, crops, augmentation."""
