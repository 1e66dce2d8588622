"""Records of scripts that are watched."""
