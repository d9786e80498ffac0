"""Words that another word normally follows: few turns and clauses end after them."""

FUNCTION_WORDS = frozenset(
    "a an the my your our their its his her to of in on at by for from with about into and or but so"
    " if that which who as than because is are was were be been can could will would should not"
    " very more".split()
)
"""Articles, prepositions, conjunctions and auxiliary verbs. Each use adds words of its own."""
