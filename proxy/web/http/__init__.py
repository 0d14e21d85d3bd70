"""Parts that every HTTP exchange needs: clients and their roles, documents, errors, paths, the end of connections."""
