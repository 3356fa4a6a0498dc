"""`python -m worker`. A child process imports this file too, so it imports nothing unless it is the one that was started."""

if __name__ == "__main__":
    from worker.cli import main

    main()
