"""Tests of the number of requests to an object store: the budgets, and their page in the docs."""
