"""The cards: one file for each table or figure of a paper, which reads as the paper's set-up section."""
