"""What gunicorn serves: `webapp.wsgi:app`. Wrong settings end the process with 2, all of them listed."""

import sys

from webapp import create_app
from worker import settings

try:
    _settings = settings.load(web=True)
except settings.SettingsError as error:
    sys.stderr.write("The settings are wrong:\n" + "".join(f"  - {problem}\n" for problem in error.problems))
    sys.exit(2)

app = create_app(_settings)
