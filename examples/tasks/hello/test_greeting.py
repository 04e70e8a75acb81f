import unittest

from greeting import greet


class GreetingTest(unittest.TestCase):
    def test_greets_the_world(self):
        self.assertEqual(greet(), "Hello, world!")

    def test_greets_by_name(self):
        self.assertEqual(greet("Ada"), "Hello, Ada!")
