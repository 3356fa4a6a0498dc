"""The learning app's own verbs: learners and cards, reviews, and what reviews come to.

Jobs, the demo and the product's API use them. They take the caller's connection and never commit; they know no job.
"""
