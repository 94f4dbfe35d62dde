"""What skvrem costs and reaches, beside other packages: see README.md."""
