"""How far a run is, as values and lines of text: for a terminal and a notebook alike."""
