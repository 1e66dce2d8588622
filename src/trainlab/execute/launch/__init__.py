"""Worker processes: how they are started, told what to do, and ended."""
