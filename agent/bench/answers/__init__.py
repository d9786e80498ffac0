"""How often a language model's answers are right: questions, rules that judge the answers, a report."""
