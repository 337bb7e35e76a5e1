"""Wheel audit: which GPUs the CUDA libraries hold code for, and whether the profile's GPU is one of them."""
