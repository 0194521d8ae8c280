"""Topics: rules for names, creation and deletion."""
