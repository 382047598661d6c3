// Requests with the session of this page. A cookie would also go to the servers of other ports of this host; what the
// browser stores for this origin is read by its scripts alone.
const KEY = "nodewright-session";
const PREFIX = "#token=";

const get = (route, credential) => fetch(route, { headers: credential ? { Authorization: `Bearer ${credential}` } : {} });

/** Exchanges the token of the link for a session: the token is valid once. */
async function logIn() {
  if (!location.hash.startsWith(PREFIX)) return;
  const token = location.hash.slice(PREFIX.length);
  history.replaceState(null, "", location.pathname);
  const answer = await get("session", token);
  if (answer.ok) sessionStorage.setItem(KEY, await answer.text());
}

const loggedIn = logIn();

export async function request(route) {
  await loggedIn;
  return get(route, sessionStorage.getItem(KEY));
}

// A new link in the address bar of this page changes the fragment only.
addEventListener("hashchange", () => {
  if (location.hash.startsWith(PREFIX)) location.reload();
});
