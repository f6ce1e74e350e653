"""The pages of predictions and verifications: figures, findings and tables."""
