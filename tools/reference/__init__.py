"""The reference pages of the documentation, made from the code they describe, so that they cannot say anything else.

`python -m reference NAME` prints one page; `make docs` writes them all to docs/reference.
"""
