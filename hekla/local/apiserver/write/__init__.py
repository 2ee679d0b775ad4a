"""create, update, patch and delete, from the decoded request to the accepted row."""
