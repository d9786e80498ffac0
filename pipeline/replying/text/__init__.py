"""The text of an answer: thoughts are removed, the length is limited, and it is cut into clauses."""
