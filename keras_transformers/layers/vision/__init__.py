"""From images to tokens and between grids: patches, merging, convolutional stems."""
