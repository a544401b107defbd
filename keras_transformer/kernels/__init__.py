"""The values of Keras' classes in fewer operations.

Each file is independent: using Keras' own class instead changes nothing but
speed. A test for each file checks that the values are the same.
"""
