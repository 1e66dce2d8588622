WORDS: dict[str, tuple[str, str]] = {"answer": ("In short", "概要")}
