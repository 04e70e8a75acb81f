def greet(name="world"):
    return f"Hello, {name}!"
