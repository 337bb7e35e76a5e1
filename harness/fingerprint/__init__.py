"""What an environment is, as numbers, and whether what is installed is still that. Reads files, anywhere.

``identity`` says what it should be, ``installed`` reads what is there, ``compare`` is the judgement,
``verify`` checks all of it once on the driver, ``guard`` checks each process that imports verl.
"""
