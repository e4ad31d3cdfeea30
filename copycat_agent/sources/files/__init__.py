"""What all sources of files share: which file it is, which paths are meant, how its bytes are read and unpacked."""
