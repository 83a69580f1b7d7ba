"""BrowserGym's MiniWoB++: web pages as bounded observations, with a time of their own.

A browser goes by the clock on the wall, so what a page shows would depend on how busy the machine
is. Here a page's timers, dates and animations go by a clock that only actions move.
"""

from __future__ import annotations

import base64
import importlib
import shutil
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import gymnasium.spaces as gs
import numpy as np

__all__ = ["STEP_MS", "MiniWoB", "register", "wrap"]

STEP_MS = 500
"""Milliseconds of a page's time an action, what BrowserGym waits before it looks at the page."""

_STEPS = 10  # as in browsergym-experiments 0.14.3, benchmark "miniwob"
_ACTION_LENGTH = 1_000
_NOOP_MS = 10_000
_ASCII = "\t\n" + "".join(map(chr, range(0x20, 0x7F)))
_LENGTHS = {"goal": 2_000, "url": 200, "axtree": 20_000, "last_action_error": 500}
_SCREEN = (214, 332, 3)  # MiniWoB's viewport
_FLAGS = (
    "--host-resolver-rules=MAP * ~NOTFOUND",  # no network
    "--disable-smooth-scrolling",  # which takes time of its own
    *("--disable-gpu", "--disable-partial-raster"),  # pixels depend on what was drawn before
)
_CLOCK = """(() => {
    const names = ["setTimeout", "clearTimeout", "setInterval", "clearInterval",
        "requestAnimationFrame", "cancelAnimationFrame"];
    const native = Object.fromEntries(names.map(name => [name, window[name].bind(window)]));
    const begin = Date.UTC(2020, 0, 1), timers = new Map();
    let now = begin, count = 0;
    const add = (call, delay, again) => {
        timers.set(++count, {call, again, due: now + Math.max(1, +delay || 0)});
        return count;
    };
    const every = (call, delay, ...given) => add(() => call(...given), delay, +delay || 1);
    const after = (call, delay, ...given) => add(() => call(...given), delay, 0);
    const frame = call => add(() => call(now - begin), 16, 0);
    const cancel = id => { timers.delete(id); };
    const virtual = Object.fromEntries(
        [after, cancel, every, cancel, frame, cancel].map((call, index) => [names[index], call]));
    Object.assign(window, virtual);
    performance.now = () => now - begin;
    window.Date = new Proxy(Date, {
        construct: (real, given) => given.length ? new real(...given) : new real(now),
        apply: real => new real(now).toString(),
        get: (real, name) => name === "now" ? () => now : real[name],
    });
    window.pageTime = {
        run(ms) {
            for (const end = now + ms; ;) {
                let next = [0, {due: Infinity}];
                for (const timer of timers) if (timer[1].due < next[1].due) next = timer;
                now = Math.min(next[1].due, end);
                if (next[1].due > end) return;
                next[1].again ? next[1].due += next[1].again : timers.delete(next[0]);
                try { next[1].call(); } catch (error) { console.error(error); }
            }
        },
        // To be ready for BrowserGym's own scripts, which wait by the clock on the wall.
        async pass(ms) {
            for (const passed of [0, ms]) {
                this.run(passed);
                for (let n = 0; n < 3; n++) await new Promise(native.requestAnimationFrame);
            }
            Object.assign(window, native);
        },
        resume: () => { Object.assign(window, virtual); },
    };
    // Another window would come at no certain time.
    window.open = () => null;
    for (const kind of ["click", "auxclick"]) window.addEventListener(kind, event => {
        const other = event.button || event.ctrlKey || event.metaKey || event.shiftKey;
        if (other && event.target.closest?.("a")) event.preventDefault();
    }, true);
    // The browser's own menu keeps it from hearing of anything else.
    window.addEventListener("contextmenu", event => event.preventDefault(), true);
    const still = new CSSStyleSheet();
    still.replaceSync("* { caret-color: transparent !important; transition: none !important; "
        + "animation: none !important }");
    document.adoptedStyleSheets = [still];
})();"""
_NOOP = f"""
def noop(wait_ms: float = 1000):
    page.evaluate("ms => pageTime.run(ms)", min(max(wait_ms, 0), {_NOOP_MS}))
"""


class _Messages:
    """In place of BrowserGym's chat window, a second browser: what it keeps, without a window."""

    def __init__(self, **_: Any) -> None:
        self.messages: list[dict[str, Any]] = []

    def add_message(self, role: str, msg: str) -> None:
        self.messages.append({"role": role, "timestamp": 0.0, "message": msg})

    def close(self) -> None:
        pass


class _Driver:
    """Playwright's process: one for all environments here, and gone when the last is closed."""

    def __init__(self) -> None:
        self._users: set[int] = set()
        self._playwright: Any = None

    def add(self, user: int) -> None:
        if not self._users:
            from playwright.sync_api import sync_playwright

            self._playwright = sync_playwright().start()
        self._users.add(user)

    def remove(self, user: int) -> None:
        if user in self._users:
            self._users.remove(user)
            if not self._users:
                self._playwright.stop()

    def for_browsergym(self) -> Any:
        browser = SimpleNamespace(launch=self._launch)
        return SimpleNamespace(selectors=self._playwright.selectors, chromium=browser)

    def _launch(self, **options: Any) -> Any:
        flags = [*options.pop("args"), *_FLAGS]
        return self._playwright.chromium.launch(executable_path=_chromium(), args=flags, **options)


_DRIVER = _Driver()


def _chromium() -> str:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise gymnasium.error.DependencyNotInstalled(
            f"none of {', '.join(names)} is on PATH: run scripts/setup-env.sh --web"
        )
    return found


def _pages() -> str:
    """Return where the pages are; importing their package would register its own environments."""
    spec = find_spec("miniwob")
    if spec is None or spec.origin is None:
        raise gymnasium.error.DependencyNotInstalled("the pages are in the package miniwob")
    return Path(spec.origin).parent.joinpath("html", "miniwob").as_uri() + "/"


def _screenshot(page: Any) -> Any:
    from PIL import Image

    session = page.context.new_cdp_session(page)
    png = base64.b64decode(session.send("Page.captureScreenshot", {"format": "png"})["data"])
    session.detach()
    return np.array(Image.open(BytesIO(png)).convert("RGB"))


@cache
def _actions() -> Any:
    """Return the actions that BrowserGym gives its benchmark "miniwob"."""
    module = importlib.import_module("browsergym.core.action.highlevel")
    actions = module.HighLevelActionSet(
        ["miniwob_all"], multiaction=False, retry_with_force=True, demo_mode="off"
    )
    # Half a second is too short for a busy machine.
    actions.python_includes = actions.python_includes.replace("timeout=500", "timeout=3000") + _NOOP
    return actions


class MiniWoB(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Shows a page as text and a picture, and moves its clock by `STEP_MS` an action.

    Attributes:
        parameters: `page_ms_per_action`.
        texts: What the task text says about it.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        inner: Any = env.unwrapped
        self._inner, self._make_task = inner, inner.task_entrypoint
        self._pages = _pages()
        inner.task_entrypoint, inner.action_mapping = self._task, _actions().to_python_code
        inner.pre_observation_delay, inner.timezone_id, inner.locale = 0, "UTC", "en-US"
        self._loaded, inner._wait_dom_loaded = inner._wait_dom_loaded, self._pass
        self.action_space = gs.Text(_ACTION_LENGTH, min_length=0, charset=_ASCII)
        texts = {k: gs.Text(n, min_length=0, charset=_ASCII) for k, n in _LENGTHS.items()}
        self.observation_space = gs.Dict({**texts, "screenshot": gs.Box(0, 255, _SCREEN, np.uint8)})
        self.parameters = {"page_ms_per_action": STEP_MS}
        self.texts = _texts(self._make_task.func.func.desc)

    def _task(self, **options: Any) -> Any:
        task = self._make_task(base_url=self._pages, **options)
        task.slow_mo, task.timeout = 0, 30_000
        setup = task.setup

        def with_clock(page: Any) -> Any:
            page.add_init_script(_CLOCK)
            ready = setup(page)
            page._bgym_scale_factor = 1.0  # enlarged while it is drawn, elements get to be hovered
            return ready

        task.setup = with_clock
        return task

    def _pass(self) -> None:
        """Let the page's time pass, again if it went to another page meanwhile."""
        from playwright.sync_api import Error

        for _ in range(3):
            self._loaded()
            try:
                self._inner.page.evaluate("ms => pageTime.pass(ms)", STEP_MS)
                return
            except Error:
                continue

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Open a browser and the task's page in it."""
        _DRIVER.add(id(self))
        seen, info = self.env.reset(**options)
        return self._shown(seen), info

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Do what the action says."""
        self._inner.page.evaluate("pageTime.resume()")
        seen, reward, terminated, truncated, info = self.env.step(action)
        info = {"task_info": info["task_info"]}  # the rest is times
        return self._shown(seen), float(reward), bool(terminated), truncated, info

    def close(self) -> None:
        """End the browser, and Playwright if nobody else here needs it."""
        try:
            self.env.close()
        finally:
            _DRIVER.remove(id(self))

    def _shown(self, seen: dict[str, Any]) -> dict[str, Any]:
        flatten = importlib.import_module("browsergym.utils.obs")
        tree = flatten.flatten_axtree_to_str(
            seen["axtree_object"],
            seen["extra_element_properties"],
            with_visible=True,
            with_clickable=True,
            with_bounding_box_coords=True,
            skip_generic=False,  # what many tasks are to be solved with is no more than that
            # Parts of texts, by line; paths of this machine.
            ignored_roles=[*flatten.IGNORED_AXTREE_ROLES, "InlineTextBox"],
            ignored_properties=[*flatten.IGNORED_AXTREE_PROPERTIES, "url"],
        )
        texts = {
            "goal": seen["goal"],
            "url": seen["url"].removeprefix(self._pages),
            "axtree": tree,
            # What follows the first line says how often Playwright has tried.
            "last_action_error": seen["last_action_error"].partition("\n")[0],
        }
        shown = {name: _plain(text)[: _LENGTHS[name]] for name, text in texts.items()}
        return {**shown, "screenshot": seen["screenshot"]}


def _plain(text: str) -> str:
    r"""Write what is not ASCII as Python does, `\u20ac`: actions may have it in the same way."""
    return "".join(c if c in _ASCII else c.encode("unicode_escape").decode() for c in text)


def _texts(task: str) -> dict[str, str]:
    actions = _actions().action_set.values()
    return {
        "Objective": f"MiniWoB++, a web page with a small task: {task} `goal` says what to do in "
        "this Episode.",
        "Observation": "`axtree` is the page's accessibility tree, an element a line, indented by "
        "tabs: `[bid] role 'name'`, its box `\"(left,top,right,bottom)\"` in pixels, whether it is "
        "clickable and visible, and other properties. An element without a bid can't be named in "
        "an action. `screenshot` is what the page shows: rows, columns, RGB. `url` is the page's "
        "address below MiniWoB's directory. `last_action_error` says why the last action failed, "
        "and is empty if it did not. Texts are cut at "
        + ", ".join(f"{length} (`{name}`)" for name, length in _LENGTHS.items())
        + " characters; what is not ASCII is written as in Python's literals, `\\u20ac`.",
        "Action": "The text of one call, with literals for arguments, as in `click('13')`. An "
        "action that is none of these, or that fails, takes a step all the same and shows "
        "in `last_action_error`. `bid` is an element's number as a text; `x` and `y` are pixels "
        f"of the screenshot. `noop` waits {_NOOP_MS} ms at most.\n\n"
        + "\n".join(f"- `{action.signature}`: {action.description}" for action in actions),
        "Reward": "1 if the page rewards what was done, however little and however late, else 0.",
        "Termination": "The page has ended the task, solved or failed, or its address has changed.",
        "Notes": f"The page's time moves by {STEP_MS} ms after each action, and by what `noop` "
        "waits; it stands still otherwise and begins on 2020-01-01 UTC. There is no network, and "
        "no other window or tab.",
    }


def register() -> None:
    """Give MiniWoB++ its step limit, and BrowserGym the browser of this machine.

    Raises:
        gymnasium.error.DependencyNotInstalled: There is no Chromium, or there are no pages.
    """
    _chromium(), _pages()
    core: Any = importlib.import_module("browsergym.core.env")
    core.Chat, core.extract_screenshot = _Messages, _screenshot
    core._get_global_playwright = _DRIVER.for_browsergym
    for name, spec in gymnasium.registry.items():
        if name.startswith("browsergym/miniwob."):
            spec.max_episode_steps = _STEPS


def wrap(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Make a page's observation a bounded one."""
    return MiniWoB(env)
