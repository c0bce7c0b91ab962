"""Substitution of each English word by one German or French word: what a translation has to beat."""


def word_by_word(sentence: str, language: str) -> str:
    raise NotImplementedError
