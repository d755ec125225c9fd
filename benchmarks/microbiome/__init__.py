"""`python -m benchmarks microbiome`: would a reviewer believe synthetic stool samples of infants who were left out?"""
