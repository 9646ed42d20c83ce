"""Turn bytes into a crop: decoding, resampling, crops, augmentation."""
