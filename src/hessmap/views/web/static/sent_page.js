// Behind figure.js in a page that is sent: every figure that has its data is drawn in the place of its picture.
for (const holder of document.querySelectorAll(".figure-data")) {
  const figure = holder.parentElement, picture = figure.querySelector("svg"), place = document.createElement("div");
  place.style.height = "20rem";
  picture.replaceWith(place);
  draw(place, JSON.parse(holder.textContent)).catch(() => place.replaceWith(picture));
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
