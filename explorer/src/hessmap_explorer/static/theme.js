// Before the first paint: the theme that the reader chose, if one was chosen.
try {
  const chosen = localStorage.getItem("hessmap-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* a browser without storage follows the system */ }
