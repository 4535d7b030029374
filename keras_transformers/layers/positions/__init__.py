"""How positions enter: encodings that are added, rotations, biases of scores."""
