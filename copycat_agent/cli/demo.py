def demo() -> None:
    """d"""
