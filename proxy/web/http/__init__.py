"""What every HTTP exchange needs: who the client is, documents, errors, paths, and how exchanges end."""
