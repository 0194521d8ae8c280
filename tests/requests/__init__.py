"""What operations ask of an object store: the budgets, and the page that tells them."""
