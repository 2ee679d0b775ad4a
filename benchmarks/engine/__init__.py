"""The engine in one process: cycles over states that are made here."""
