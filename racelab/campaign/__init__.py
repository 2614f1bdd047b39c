"""Many runs that belong together: the matrix of scenarios against policies and single guard removals."""
