"""Records of a chunk of bytes become messages: a definition, compiled once (`encoder.Encoder`) and bound to each split."""
