"""Finding: where in a script's own text its time goes between torch's calls, and what it keeps."""
